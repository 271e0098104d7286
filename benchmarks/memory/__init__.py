"""What is remembered and what is told of it, in figures: facts asked for in other words, a month of junk."""
