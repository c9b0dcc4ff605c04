# The subcommands, in the order of `darl --help`; one line each.
darl_command(init LIBS darl_run_config)
darl_command(tokenize LIBS darlcore::formats)
darl_command(space)
if(TARGET darlcore_slurm)
  darl_command(slurm LIBS darlcore::slurm)
endif()
add_subdirectory(plan)
darl_command(plan LIBS darl_plan)
