"""Where PyTorch GPU memory goes."""

__all__ = ["__version__"]

__version__ = "0.1.0"
