"""The doctor's checks of an installation; each check reports one finding."""
