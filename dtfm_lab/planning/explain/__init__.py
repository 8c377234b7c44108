"""What causes a plan's cost: ``explain`` for one plan, ``Difference`` for two, ``worth`` for what each device saves."""
