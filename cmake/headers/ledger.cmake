set(DARLCORE_HEADERS_LEDGER
  ${PROJECT_SOURCE_DIR}/include/darlcore/ledger/clock.hpp
  ${PROJECT_SOURCE_DIR}/include/darlcore/ledger/effects.hpp
  ${PROJECT_SOURCE_DIR}/include/darlcore/ledger/records.hpp
  ${PROJECT_SOURCE_DIR}/include/darlcore/ledger/requests.hpp
  ${PROJECT_SOURCE_DIR}/include/darlcore/ledger/settings.hpp
)
