"""Run folders: what is written, and how it is read back."""

from pads.runs.folder import RunFolder, SilentFolder, next_free

__all__ = ["RunFolder", "SilentFolder", "next_free"]
