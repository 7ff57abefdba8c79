"""Where PyTorch GPU memory goes."""
