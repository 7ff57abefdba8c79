"""What ``gpumemtrace demo`` runs: an ordinary training script that knows nothing of gpumemtrace."""
