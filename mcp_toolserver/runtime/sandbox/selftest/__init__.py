"""The self-test that proves each layer at start-up."""
