set(DARLCORE_HEADERS_MERGE
  ${PROJECT_SOURCE_DIR}/include/darlcore/merge/delta_scan.hpp
  ${PROJECT_SOURCE_DIR}/include/darlcore/merge/dtype.hpp
  ${PROJECT_SOURCE_DIR}/include/darlcore/merge/guards.hpp
  ${PROJECT_SOURCE_DIR}/include/darlcore/merge/norm_history.hpp
  ${PROJECT_SOURCE_DIR}/include/darlcore/merge/tensor_spec.hpp
)
