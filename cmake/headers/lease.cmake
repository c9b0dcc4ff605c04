set(DARLCORE_HEADERS_LEASE
  ${PROJECT_SOURCE_DIR}/include/darlcore/lease/events.hpp
  ${PROJECT_SOURCE_DIR}/include/darlcore/lease/requests.hpp
  ${PROJECT_SOURCE_DIR}/include/darlcore/lease/settings.hpp
  ${PROJECT_SOURCE_DIR}/include/darlcore/lease/types.hpp
)
