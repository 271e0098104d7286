"""The product's services: the two fronts that callers know, and the rooms behind them."""
