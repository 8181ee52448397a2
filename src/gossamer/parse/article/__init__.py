"""The article of a page: its main text, as text and as Markdown, with the facts that the page states about it.

Reading order: article.py (`article_of`, `main_text`, `markdown`), outline.py (the page as flat lists), main_content.py
(which element holds the text, and what is struck out), render.py (text and Markdown of the rest).
"""

from .article import Article, article_of, main_text, markdown

__all__ = ["Article", "article_of", "main_text", "markdown"]
