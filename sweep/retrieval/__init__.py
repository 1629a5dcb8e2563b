"""One configuration, run on a collection; knows nothing of Optuna."""
