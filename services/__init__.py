"""The product's services: two modules for callers of earlier versions, and the packages behind them."""
