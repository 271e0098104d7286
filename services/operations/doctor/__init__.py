"""What is checked of an installation, one finding for each."""
