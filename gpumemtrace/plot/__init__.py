"""Figures: each shows a result and computes nothing."""
