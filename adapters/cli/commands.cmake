# The subcommands, in the order of `darl --help`; one line each.
