"""Stubs of what journals and snapshots store; generated from proto/ by `make proto`."""
