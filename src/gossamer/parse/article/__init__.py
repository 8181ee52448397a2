"""The main text of a page, as text and as Markdown, with what the page says about it."""

from .reading import Article, article_of, main_text, markdown

__all__ = ["Article", "article_of", "main_text", "markdown"]
