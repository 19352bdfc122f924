# alone_library(NAME FOLDERS...) makes a library of the sources in and below these folders whose headers are all found. The compiler lists the
# headers.
function(alone_library name)
  list(TRANSFORM ARGN PREPEND ${root}/)
  list(TRANSFORM ARGN APPEND /*.c)
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${ARGN})
  list(FILTER sources EXCLUDE REGEX "/main\\.c$")
  set(folders ${alone_includes})
  list(TRANSFORM folders PREPEND -I)
  # -MM does not report a missing <header.h>
  execute_process(COMMAND ${CMAKE_C_COMPILER} -M -MG -D_GNU_SOURCE -I${root} ${folders} ${sources}
                  OUTPUT_VARIABLE rules COMMAND_ERROR_IS_FATAL ANY)
  string(REPLACE "\\\n" " " rules "${rules}")
  string(ASCII 1 space) # this character stands for a space in a path, before which gcc writes a backslash
  string(REPLACE "\\ " "${space}" rules "${rules}")
  string(REPLACE "\n" ";" rules "${rules}")
  set(found)
  foreach(rule ${rules}) # a rule looks like this: x.o: /abs/x.c /abs/there.h absent.h
    if(rule MATCHES "/([^ /]+\\.c) .* ([^/ ][^ ]*\\.h)")
      string(APPEND left " ${CMAKE_MATCH_1} (${CMAKE_MATCH_2})")
    elseif(rule MATCHES ": *([^ ]+)")
      list(APPEND found ${CMAKE_MATCH_1})
    endif()
  endforeach()
  string(REPLACE "${space}" " " found "${found}")
  add_library(${name} STATIC ${found})
  target_include_directories(${name} SYSTEM PUBLIC ${alone_includes})
  if(left)
    message(STATUS "left out of ${name}:${left}")
  endif()
endfunction()
