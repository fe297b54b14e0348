# For makefiles:
#
#   MDH_LIFT_SOURCES := gemm.c solve.c
#   include $(shell mdh-lift version --where)/mdh_lift.mk
#   app: mdh-lift-check
#
# `make mdh-lift-check` checks directives, splices and the lock file; it compiles and runs nothing.
# `make mdh-lift-splice-check` says what `mdh-lift splice -w` would change.
# MDH_LIFT_FLAGS are options (--fail-on warning), MDH_LIFT_CFLAGS what the preprocessor needs (-I include).

MDH_LIFT ?= mdh-lift
MDH_LIFT_FLAGS ?=
MDH_LIFT_CFLAGS ?=

# The first target of the including file stays the one that `make` alone makes.
mdh_lift_goal := $(.DEFAULT_GOAL)

.PHONY: mdh-lift-check mdh-lift-splice-check

mdh-lift-check:
	$(MDH_LIFT) check --format concise $(MDH_LIFT_FLAGS) $(MDH_LIFT_SOURCES) $(if $(strip $(MDH_LIFT_CFLAGS)),-- $(CC) $(MDH_LIFT_CFLAGS))

mdh-lift-splice-check:
	$(MDH_LIFT) splice --check $(MDH_LIFT_FLAGS) $(MDH_LIFT_SOURCES) $(if $(strip $(MDH_LIFT_CFLAGS)),-- $(CC) $(MDH_LIFT_CFLAGS))

.DEFAULT_GOAL := $(mdh_lift_goal)
