"""A trained network for others: safetensors, ONNX or torch.export, checked against the original, with a model card."""

from pads.publish.export import export_run
from pads.publish.formats import FORMATS

__all__ = ["FORMATS", "export_run"]
