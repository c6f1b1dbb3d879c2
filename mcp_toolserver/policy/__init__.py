"""Pure decisions: what a rule, the ceiling and the watchdog say of a call. No input or output here."""
