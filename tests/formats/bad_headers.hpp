// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "darlcore/error.hpp"

// Malformed safetensors headers: the same table for the parser, the reader and the programs.
namespace darlcore::testing {

inline std::string length_of(std::uint64_t n) {
    std::string text(8, '\0');
    for (std::size_t i = 0; i < 8; ++i) text[i] = static_cast<char>((n >> (8 * i)) & 0xffU);
    return text;
}

inline std::string with_length(const std::string& json) { return length_of(json.size()) + json; }

struct bad_header {
    const char* about;
    std::string json;
    std::uint64_t data_bytes;
    errc code;
    const char* reason;
};

inline std::string tensor_a(const std::string& body) { return "{\"a\":{" + body + "}}"; }

inline const std::string a4 = R"("a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]})";

// clang-format off
inline std::vector<bad_header> bad_texts() {
    return {
        {"no text", "", 0, errc::parse_error, "start with {"},
        {"only spaces", "   ", 0, errc::parse_error, "start with {"},
        {"space first", " {}", 0, errc::parse_error, "start with {"},
        {"byte order mark", "\xef\xbb\xbf{}", 0, errc::parse_error, "start with {"},
        {"list", "[]", 0, errc::parse_error, "start with {"},
        {"string", "\"a\"", 0, errc::parse_error, "start with {"},
        {"number", "1", 0, errc::parse_error, "start with {"},
        {"null", "null", 0, errc::parse_error, "start with {"},
        {"never closed", "{", 0, errc::parse_error, "padded with spaces"},
        {"newline padding", "{}\n", 0, errc::parse_error, "padded with spaces"},
        {"tab padding", "{}\t", 0, errc::parse_error, "padded with spaces"},
        {"nul padding", std::string("{}\0\0", 4), 0, errc::parse_error, "padded with spaces"},
        {"text behind", "{} x", 0, errc::parse_error, "padded with spaces"},
        {"two documents", "{}{}", 0, errc::parse_error, "clean JSON"},
        {"comma at the end", "{" + a4 + ",}", 4, errc::parse_error, "clean JSON"},
        {"no colon", "{\"a\" 1}", 0, errc::parse_error, "clean JSON"},
        {"single quotes", "{'a':1}", 0, errc::parse_error, "clean JSON"},
        {"comment", "{/*x*/}", 0, errc::parse_error, "clean JSON"},
        {"invalid UTF-8 in a name", "{\"\xff\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4, errc::parse_error, "clean JSON"},
        {"overlong UTF-8", "{\"\xc0\x80\":1}", 0, errc::parse_error, "clean JSON"},
        {"lone surrogate", "{\"\\ud800\":1}", 0, errc::parse_error, "clean JSON"},
        {"control character in a name", "{\"a\x01\":1}", 0, errc::parse_error, "clean JSON"},
        {"nan", tensor_a(R"("dtype":"F32","shape":[NaN],"data_offsets":[0,4])"), 4, errc::parse_error, "clean JSON"},
        {"leading zero", tensor_a(R"("dtype":"F32","shape":[01],"data_offsets":[0,4])"), 4, errc::parse_error, "clean JSON"},
        {"number above 64 bits", tensor_a(R"("dtype":"F32","shape":[18446744073709551616],"data_offsets":[0,4])"), 4, errc::parse_error, "clean JSON"},
        {"too deep", "{\"a\":[[[[[[[[[[1]]]]]]]]]]}", 0, errc::parse_error, "clean JSON"},
        {"tensor twice", "{" + a4 + "," + a4 + "}", 4, errc::parse_error, "twice"},
        {"metadata twice", "{\"__metadata__\":{},\"__metadata__\":{}}", 0, errc::parse_error, "twice"},
        {"metadata key twice", R"({"__metadata__":{"k":"1","k":"2"}})", 0, errc::parse_error, "twice"},
        {"dtype twice", tensor_a(R"("dtype":"F32","dtype":"F32","shape":[1],"data_offsets":[0,4])"), 4, errc::parse_error, "twice"},
        {"metadata a list", R"({"__metadata__":[]})", 0, errc::parse_error, "__metadata__ is not an object"},
        {"metadata null", R"({"__metadata__":null})", 0, errc::parse_error, "__metadata__ is not an object"},
        {"metadata number", R"({"__metadata__":{"k":1}})", 0, errc::parse_error, "is not a string"},
        {"metadata nested", R"({"__metadata__":{"k":{}}})", 0, errc::parse_error, "is not a string"},
        {"metadata null text", R"({"__metadata__":{"k":null}})", 0, errc::parse_error, "is not a string"},
        {"metadata flag", R"({"__metadata__":{"k":true}})", 0, errc::parse_error, "is not a string"},
    };
}

inline std::vector<bad_header> bad_tensors() {
    return {
        {"empty name", R"({"":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 4, errc::parse_error, "empty name"},
        {"tensor is a number", R"({"a":4})", 0, errc::parse_error, "not an object"},
        {"tensor is a list", R"({"a":[]})", 0, errc::parse_error, "not an object"},
        {"tensor is null", R"({"a":null})", 0, errc::parse_error, "not an object"},
        {"tensor without anything", R"({"a":{}})", 0, errc::parse_error, "is missing"},
        {"no dtype", tensor_a(R"("shape":[1],"data_offsets":[0,4])"), 4, errc::parse_error, "is missing"},
        {"no shape", tensor_a(R"("dtype":"F32","data_offsets":[0,4])"), 4, errc::parse_error, "is missing"},
        {"no offsets", tensor_a(R"("dtype":"F32","shape":[1])"), 4, errc::parse_error, "is missing"},
        {"further key", tensor_a(R"("dtype":"F32","shape":[1],"data_offsets":[0,4],"x":1)"), 4, errc::parse_error, "unexpected key"},
        {"misspelt key", tensor_a(R"("dtype":"F32","Shape":[1],"data_offsets":[0,4])"), 4, errc::parse_error, "unexpected key"},
        {"dtype a number", tensor_a(R"("dtype":32,"shape":[1],"data_offsets":[0,4])"), 4, errc::parse_error, "dtype is not a string"},
        {"dtype null", tensor_a(R"("dtype":null,"shape":[1],"data_offsets":[0,4])"), 4, errc::parse_error, "dtype is not a string"},
        {"dtype in lower case", tensor_a(R"("dtype":"f32","shape":[1],"data_offsets":[0,4])"), 4, errc::unsupported, "unknown dtype"},
        {"dtype unknown", tensor_a(R"("dtype":"F4","shape":[1],"data_offsets":[0,4])"), 4, errc::unsupported, "unknown dtype"},
        {"dtype empty", tensor_a(R"("dtype":"","shape":[1],"data_offsets":[0,4])"), 4, errc::unsupported, "unknown dtype"},
        {"shape a number", tensor_a(R"("dtype":"F32","shape":1,"data_offsets":[0,4])"), 4, errc::parse_error, "shape is not a list"},
        {"shape a string", tensor_a(R"("dtype":"F32","shape":"1","data_offsets":[0,4])"), 4, errc::parse_error, "shape is not a list"},
        {"negative extent", tensor_a(R"("dtype":"F32","shape":[-1],"data_offsets":[0,4])"), 4, errc::parse_error, "shape holds"},
        {"fractional extent", tensor_a(R"("dtype":"F32","shape":[1.0],"data_offsets":[0,4])"), 4, errc::parse_error, "shape holds"},
        {"extent with exponent", tensor_a(R"("dtype":"F32","shape":[1e0],"data_offsets":[0,4])"), 4, errc::parse_error, "shape holds"},
        {"extent a string", tensor_a(R"("dtype":"F32","shape":["1"],"data_offsets":[0,4])"), 4, errc::parse_error, "shape holds"},
        {"extent a flag", tensor_a(R"("dtype":"F32","shape":[true],"data_offsets":[0,4])"), 4, errc::parse_error, "shape holds"},
        {"offsets a number", tensor_a(R"("dtype":"F32","shape":[1],"data_offsets":4)"), 4, errc::parse_error, "data_offsets is not a list"},
        {"one offset", tensor_a(R"("dtype":"F32","shape":[1],"data_offsets":[4])"), 4, errc::parse_error, "not a pair"},
        {"three offsets", tensor_a(R"("dtype":"F32","shape":[1],"data_offsets":[0,4,4])"), 4, errc::parse_error, "not a pair"},
        {"negative offset", tensor_a(R"("dtype":"F32","shape":[1],"data_offsets":[-4,0])"), 4, errc::parse_error, "data_offsets holds"},
        {"offset a string", tensor_a(R"("dtype":"F32","shape":[1],"data_offsets":["0","4"])"), 4, errc::parse_error, "data_offsets holds"},
        {"end before begin", tensor_a(R"("dtype":"F32","shape":[1],"data_offsets":[4,0])"), 4, errc::corrupt, "end before they begin"},
        {"end beyond the file", tensor_a(R"("dtype":"F32","shape":[2],"data_offsets":[0,8])"), 4, errc::corrupt, "beyond the end"},
        {"offset near 2^64", tensor_a(R"("dtype":"F32","shape":[1],"data_offsets":[18446744073709551612,18446744073709551615])"), 4, errc::corrupt, "beyond the end"},
        {"shape too small", tensor_a(R"("dtype":"F32","shape":[1],"data_offsets":[0,8])"), 8, errc::corrupt, "shape and dtype need 4 bytes"},
        {"shape too large", tensor_a(R"("dtype":"F32","shape":[3],"data_offsets":[0,8])"), 8, errc::corrupt, "shape and dtype need 12 bytes"},
        {"scalar of the wrong size", tensor_a(R"("dtype":"F64","shape":[],"data_offsets":[0,4])"), 4, errc::corrupt, "shape and dtype need 8 bytes"},
        {"empty tensor with bytes", tensor_a(R"("dtype":"F32","shape":[0],"data_offsets":[0,4])"), 4, errc::corrupt, "shape and dtype need 0 bytes"},
        {"product of extents above 2^64", tensor_a(R"("dtype":"F32","shape":[4294967296,4294967296,4],"data_offsets":[0,0])"), 0, errc::overflow, "2^63 elements"},
        {"overflow hidden by a zero", tensor_a(R"("dtype":"F32","shape":[4294967296,4294967296,4,0],"data_offsets":[0,0])"), 0, errc::overflow, "2^63 elements"},
        {"bytes above 2^63", tensor_a(R"("dtype":"F64","shape":[2305843009213693952],"data_offsets":[0,0])"), 0, errc::overflow, "2^63 bytes"},
        {"hole at the start", tensor_a(R"("dtype":"F32","shape":[1],"data_offsets":[4,8])"), 8, errc::corrupt, "hole of 4 bytes"},
        {"hole between", "{" + a4 + R"(,"b":{"dtype":"F32","shape":[1],"data_offsets":[8,12]}})", 12, errc::corrupt, "hole of 4 bytes"},
        {"overlap", "{" + a4 + R"(,"b":{"dtype":"F32","shape":[1],"data_offsets":[2,6]}})", 6, errc::corrupt, "overlaps"},
        {"same bytes for two names", "{" + a4 + R"(,"b":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 4, errc::corrupt, "overlaps"},
        {"empty tensor inside another", "{" + a4 + R"(,"b":{"dtype":"F32","shape":[0],"data_offsets":[2,2]}})", 4, errc::corrupt, "overlaps"},
        {"bytes behind the last tensor", "{" + a4 + "}", 5, errc::corrupt, "behind the last tensor"},
        {"bytes but no tensor", "{}", 1, errc::corrupt, "behind the last tensor"},
    };
}
// clang-format on

inline std::vector<bad_header> bad_headers() {
    auto table = bad_texts();
    for (auto& bad : bad_tensors()) table.push_back(std::move(bad));
    return table;
}

/// The whole file: header and so many bytes of zeros.
inline std::string file_of(const bad_header& bad) { return with_length(bad.json) + std::string(bad.data_bytes, '\0'); }

}  // namespace darlcore::testing
