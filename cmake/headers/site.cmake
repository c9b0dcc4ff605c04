set(DARLCORE_HEADERS_SITE
  ${PROJECT_SOURCE_DIR}/include/darlcore/site/holdings.hpp
  ${PROJECT_SOURCE_DIR}/include/darlcore/site/messages.hpp
  ${PROJECT_SOURCE_DIR}/include/darlcore/site/session.hpp
  ${PROJECT_SOURCE_DIR}/include/darlcore/site/session_answers.hpp
  ${PROJECT_SOURCE_DIR}/include/darlcore/site/session_phase.hpp
  ${PROJECT_SOURCE_DIR}/include/darlcore/site/session_state.hpp
)
