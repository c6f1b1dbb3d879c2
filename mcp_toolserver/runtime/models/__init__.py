"""Language models of providers that the operator configured."""
