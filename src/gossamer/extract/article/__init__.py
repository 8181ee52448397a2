"""The main content of a page, as text and as Markdown, what the page is for, and the facts that it states.

Reading order: article.py (`article_of`, `main_text`, `markdown`), outline.py (the page as flat lists), main_content.py
(which element holds the text of an article, and what is struck out), traits.py and likelihood.py (which paragraphs of
any other page are content), parts.py (cards, questions, comments and reviews, chosen as a whole), kind.py (what the
page is for). content.py writes text and Markdown of the rest.
weights.json is learned: `python -m quality.fit`.
"""

from .article import Article, article_of, kind_of_page, main_text, markdown
from .kind import KindOfPage

__all__ = ["Article", "KindOfPage", "article_of", "kind_of_page", "main_text", "markdown"]
