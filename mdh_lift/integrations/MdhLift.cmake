# mdh_lift_check(TARGET [FAIL_ON error|warning|info] [OPTIONS option...])
#
#   execute_process(COMMAND mdh-lift version --where OUTPUT_VARIABLE MDH_LIFT_DIR OUTPUT_STRIP_TRAILING_WHITESPACE)
#   include(${MDH_LIFT_DIR}/MdhLift.cmake)
#   add_executable(app main.c gemm.c)
#   mdh_lift_check(app)
#
# Checks the C sources of a target before it is built, again whenever one of them or the lock file changed.
# Findings fail the build. The check compiles and runs nothing.

cmake_minimum_required(VERSION 3.20)

find_program(MDH_LIFT_EXECUTABLE mdh-lift DOC "The command mdh-lift" REQUIRED)

function(mdh_lift_check target)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "FAIL_ON" "OPTIONS")
  if(arg_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "mdh_lift_check: unknown arguments: ${arg_UNPARSED_ARGUMENTS}")
  endif()
  set_target_properties(${target} PROPERTIES EXPORT_COMPILE_COMMANDS ON)
  get_target_property(sources ${target} SOURCES)
  get_target_property(directory ${target} SOURCE_DIR)
  set(checked "")
  set(needed "")
  foreach(source IN LISTS sources)
    if(source MATCHES "^\\$<")
      continue() # known to the generator only
    endif()
    get_filename_component(path "${source}" ABSOLUTE BASE_DIR "${directory}")
    list(APPEND needed "${path}")
    if(path MATCHES "\\.c$")
      list(APPEND checked "${path}")
    endif()
  endforeach()
  if(NOT checked)
    message(WARNING "mdh_lift_check: ${target} has no C sources")
    return()
  endif()
  foreach(file mdh-lift.lock mdh-lift.toml .mdh-lift.toml)
    if(EXISTS "${directory}/${file}")
      list(APPEND needed "${directory}/${file}")
    endif()
  endforeach()
  set(options ${arg_OPTIONS})
  if(arg_FAIL_ON)
    list(APPEND options --fail-on "${arg_FAIL_ON}")
  endif()
  set(stamp "${CMAKE_CURRENT_BINARY_DIR}/${target}_mdh_lift_check.stamp")
  add_custom_command(
    OUTPUT "${stamp}"
    COMMAND "${MDH_LIFT_EXECUTABLE}" -C "${directory}" -p "${CMAKE_BINARY_DIR}" check --format concise
            --ignore MDH007 ${options} ${checked}
    COMMAND "${CMAKE_COMMAND}" -E touch "${stamp}"
    DEPENDS ${needed}
    COMMENT "mdh-lift check ${target}"
    VERBATIM)
  add_custom_target(${target}_mdh_lift_check DEPENDS "${stamp}")
  add_dependencies(${target} ${target}_mdh_lift_check)
endfunction()
