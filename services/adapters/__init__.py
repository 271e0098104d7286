"""One package per outside technology: adapters only translate, and only the wiring opens them."""
