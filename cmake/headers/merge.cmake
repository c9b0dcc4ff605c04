set(DARLCORE_HEADERS_MERGE
  ${PROJECT_SOURCE_DIR}/include/darlcore/merge/dtype.hpp
  ${PROJECT_SOURCE_DIR}/include/darlcore/merge/tensor_spec.hpp
)
