"""What the outcomes mean: which configuration to ship, and how sure that is."""
