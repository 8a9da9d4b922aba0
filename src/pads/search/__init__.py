"""Finding images that look alike with a trained network: an index of a folder, and searching it."""

from pads.search.index import Index, build_index

__all__ = ["Index", "build_index"]
