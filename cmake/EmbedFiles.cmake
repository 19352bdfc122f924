# cox_embed_files(TARGET NAME ENTRY...): embeds files into a binary, which serves them unchanged. An ENTRY is "FILE|PATH|TYPE": the file relative to
# this folder, the path at which it is served, and its media type. TARGET gets a C file that defines `const struct http_file NAME[]` and `const
# size_t n_NAME` (common/http/handlers/files.h).
function(cox_embed_files target name)
  set(bytes_of_all "")
  set(rows "")
  foreach(entry ${ARGN})
    string(REPLACE "|" ";" entry "${entry}")
    list(GET entry 0 file)
    list(GET entry 1 path)
    list(GET entry 2 type)
    cmake_path(ABSOLUTE_PATH file NORMALIZE OUTPUT_VARIABLE full)
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${full})
    file(READ ${full} bytes HEX)
    string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${bytes}")
    string(MAKE_C_IDENTIFIER "file_${path}_${file}" id)
    string(APPEND bytes_of_all "static const char ${id}[] = {${bytes}0};\n")
    string(APPEND rows "    {\"${path}\", \"${type}; charset=utf-8\", ${id}, sizeof ${id} - 1},\n")
  endforeach()
  file(CONFIGURE OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/${name}.c CONTENT
"#include \"common/http/handlers/files.h\"
@bytes_of_all@
extern const struct http_file @name@[];
extern const size_t n_@name@;
const struct http_file @name@[] = {
@rows@};
const size_t n_@name@ = sizeof @name@ / sizeof @name@[0];
" @ONLY)
  target_sources(${target} PRIVATE ${CMAKE_CURRENT_BINARY_DIR}/${name}.c)
endfunction()
