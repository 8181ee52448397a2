"""What a page says about itself: title, author, dates, addresses, feeds, languages."""

from .reading import Metadata, metadata_of

__all__ = ["Metadata", "metadata_of"]
