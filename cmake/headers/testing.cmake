set(DARLCORE_HEADERS_TESTING
  ${PROJECT_SOURCE_DIR}/include/darlcore/testing/budget.hpp
  ${PROJECT_SOURCE_DIR}/include/darlcore/testing/property.hpp
  ${PROJECT_SOURCE_DIR}/include/darlcore/testing/plan_twins.hpp
)
