# How every target of the project is made.

add_library(darlcore_build INTERFACE)
target_compile_options(darlcore_build INTERFACE
  -Wall -Wextra -Wpedantic -Wconversion -Wshadow -Wno-psabi $<$<BOOL:${DARLCORE_WERROR}>:-Werror>)
if(DARLCORE_SANITIZE)
  target_compile_options(darlcore_build INTERFACE -fsanitize=${DARLCORE_SANITIZE} -fno-omit-frame-pointer
    -fno-sanitize-recover=all)
  target_link_options(darlcore_build INTERFACE -fsanitize=${DARLCORE_SANITIZE})
endif()

# darlcore_library(NAME SOURCES a.cpp … [PUBLIC libs] [PRIVATE libs]): a backend or adapter, as target darlcore::NAME.
function(darlcore_library name)
  cmake_parse_arguments(arg "" "" "SOURCES;PUBLIC;PRIVATE" ${ARGN})
  add_library(darlcore_${name} STATIC ${arg_SOURCES})
  add_library(darlcore::${name} ALIAS darlcore_${name})
  set_target_properties(darlcore_${name} PROPERTIES EXPORT_NAME ${name})
  target_include_directories(darlcore_${name} PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>)
  target_link_libraries(darlcore_${name} PUBLIC darlcore::core ${arg_PUBLIC} PRIVATE $<BUILD_INTERFACE:darlcore_build> ${arg_PRIVATE})
endfunction()

# darlcore_test(NAME SOURCES a.cpp … [LIBS libs] [LABELS l] [TIMEOUT s]): one GoogleTest program; each TEST is one ctest case.
# Tests find their data under DARLCORE_TEST_DATA. Label `core` = needs nothing but the standard library (run by every compiler and sanitizer).
function(darlcore_test name)
  cmake_parse_arguments(arg "" "TIMEOUT" "SOURCES;LIBS;LABELS" ${ARGN})
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 300)
  endif()
  math(EXPR arg_TIMEOUT "${arg_TIMEOUT} * ${DARLCORE_TEST_TIMEOUT_FACTOR}")
  if(NOT arg_LABELS)
    set(arg_LABELS backend)
  endif()
  add_executable(test_${name} ${arg_SOURCES})
  target_link_libraries(test_${name} PRIVATE darlcore_build darlcore::core darlcore::testing ${arg_LIBS} GTest::gtest_main)
  target_include_directories(test_${name} PRIVATE ${PROJECT_SOURCE_DIR})
  target_compile_definitions(test_${name} PRIVATE DARLCORE_TEST_DATA="${PROJECT_SOURCE_DIR}/tests/data")
  gtest_discover_tests(test_${name} TEST_PREFIX "${name}." DISCOVERY_MODE PRE_TEST
    PROPERTIES LABELS "${arg_LABELS}" TIMEOUT ${arg_TIMEOUT})
endfunction()

# darlcore_fuzz(NAME SOURCES a.cpp [LIBS libs]): a fuzz target. With clang and the fuzz preset it is a libFuzzer program; in every other
# configuration the same source is linked to a plain main that replays files and folders, and ctest replays fuzz/corpus/NAME.
function(darlcore_fuzz name)
  cmake_parse_arguments(arg "" "" "SOURCES;LIBS" ${ARGN})
  add_executable(fuzz_${name} ${arg_SOURCES})
  target_link_libraries(fuzz_${name} PRIVATE darlcore_build darlcore::core darlcore::testing ${arg_LIBS})
  target_include_directories(fuzz_${name} PRIVATE ${PROJECT_SOURCE_DIR})
  if(DARLCORE_LIBFUZZER)
    target_compile_options(fuzz_${name} PRIVATE -fsanitize=fuzzer)
    target_link_options(fuzz_${name} PRIVATE -fsanitize=fuzzer)
  else()
    target_sources(fuzz_${name} PRIVATE ${PROJECT_SOURCE_DIR}/fuzz/replay_main.cpp)
    if(EXISTS ${PROJECT_SOURCE_DIR}/fuzz/corpus/${name})
      add_test(NAME fuzz_replay.${name} COMMAND fuzz_${name} ${PROJECT_SOURCE_DIR}/fuzz/corpus/${name})
      set_tests_properties(fuzz_replay.${name} PROPERTIES LABELS "fuzz" TIMEOUT 300)
    endif()
  endif()
endfunction()

# darlcore_bench(NAME SOURCES a.cpp [LIBS libs]): a Google Benchmark program, build/bench/bench_NAME.
function(darlcore_bench name)
  cmake_parse_arguments(arg "" "" "SOURCES;LIBS" ${ARGN})
  add_executable(bench_${name} ${arg_SOURCES})
  target_link_libraries(bench_${name} PRIVATE darlcore_build darlcore::core darlcore::testing ${arg_LIBS} benchmark::benchmark)
  target_include_directories(bench_${name} PRIVATE ${PROJECT_SOURCE_DIR})
endfunction()
