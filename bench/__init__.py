"""What handrail promises about speed, measured as ratios to baselines in the same run."""
