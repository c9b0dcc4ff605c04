# Options. A project that includes darlcore (add_subdirectory or find_package) gets targets only: no tests, no tools.
set(DARLCORE_IS_TOP ${PROJECT_IS_TOP_LEVEL})

option(DARLCORE_WITH_STORAGE "journal, snapshots and blobs on files" ${DARLCORE_IS_TOP})
option(DARLCORE_WITH_SIM "simulated clock, network and disk" ${DARLCORE_IS_TOP})
option(DARLCORE_WITH_FORMATS "safetensors, token shards, tokenizers (simdjson, PCRE2, utf8proc)" ${DARLCORE_IS_TOP})
option(DARLCORE_WITH_SLURM "Slurm runner and parsers" ${DARLCORE_IS_TOP})
option(DARLCORE_WITH_ASIO "HTTP server (standalone Asio, Boost.Beast, OpenSSL, simdjson)" ${DARLCORE_IS_TOP})
option(DARLCORE_WITH_CURL "HTTP client (libcurl, simdjson)" ${DARLCORE_IS_TOP})
option(DARLCORE_WITH_TORCH "models, trainer and tensor backend on libtorch" OFF)
option(DARLCORE_WITH_CLI "the darl command (CLI11, toml++, fmt)" ${DARLCORE_IS_TOP})
option(DARLCORE_BUILD_TESTS "tests (GoogleTest, RapidCheck)" ${DARLCORE_IS_TOP})
option(DARLCORE_BUILD_FUZZ "fuzz targets; libFuzzer with clang, a replay main otherwise" OFF)
option(DARLCORE_BUILD_BENCH "benchmarks (Google Benchmark)" OFF)
option(DARLCORE_BUILD_EXAMPLES "examples" ${DARLCORE_IS_TOP})
option(DARLCORE_WERROR "warnings are errors" OFF)
set(DARLCORE_SANITIZE "" CACHE STRING "sanitizers of every target, e.g. address,undefined or thread")
set(DARLCORE_TEST_TIMEOUT_FACTOR 1 CACHE STRING "multiplies the time limits of tests, for longer runs")
set(DARLCORE_TORCH_DIR "" CACHE PATH "root of a libtorch 2.x (the folder with lib/ and include/); empty = Debian's package")

# tests of layers that are switched off are not built
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)

if(DARLCORE_IS_TOP)
  set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
  if(NOT CMAKE_BUILD_TYPE)
    set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
  endif()
  find_program(DARLCORE_CCACHE ccache)
  if(DARLCORE_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
    # relative paths and no directory hash: two checkouts of one source share the cache
    set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${CMAKE_SOURCE_DIR} CCACHE_NOHASHDIR=1
        CCACHE_SLOPPINESS=time_macros ${DARLCORE_CCACHE})
  endif()
endif()
