"""The live side: the only package that imports Ray. It consumes plans and decides nothing."""
