set(DARLCORE_HEADERS_BASE
  ${PROJECT_SOURCE_DIR}/include/darlcore/assert.hpp
  ${PROJECT_SOURCE_DIR}/include/darlcore/error.hpp
  ${PROJECT_SOURCE_DIR}/include/darlcore/units.hpp
)
