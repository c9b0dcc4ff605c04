# The subcommands, in the order of `darl --help`; one line each.
darl_command(init LIBS darl_run_config)
