"""What a turn sent to the model, and why its passages were chosen."""
