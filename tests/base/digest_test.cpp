// SPDX-License-Identifier: Apache-2.0
#include "darlcore/digest.hpp"

#include <numeric>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "darlcore/testing/property.hpp"

namespace {

using namespace darlcore;

TEST(blake2b_hash, matches_the_published_values) {
    EXPECT_EQ(to_hex(blake2b_of<64>("abc")),
              "ba80a53f981c4d0d6a2797b69f12f6e94c212f14685ac4b74b12bb6fdbffa2d1"
              "7d87c5392aab792dc252d5de4533cc9518d38aa8dbf1925ab92386edd4009923");
    EXPECT_EQ(to_hex(blake2b_of<64>("")),
              "786a02f742015903c6c6fd852552d272912f4740e15847618a86e217f71f5419"
              "d25e1031afee585313896444934eb04b903a685b1448b755d56f701afe9be2ce");
    EXPECT_EQ(to_hex(blake2b_of<32>("abc")), "bddd813c634239723171ef3fee98579b94964e3bb1cb3e427262c8c068d52319");
}

// Bytes as the self test of RFC 7693 generates them.
std::vector<std::uint8_t> self_test_sequence(std::size_t size, std::uint32_t seed) {
    std::vector<std::uint8_t> out;
    std::uint32_t a = 0xdead4badU * seed;
    std::uint32_t b = 1;
    for (std::size_t i = 0; i < size; ++i) {
        const std::uint32_t t = a + b;
        a = b;
        b = t;
        out.push_back(static_cast<std::uint8_t>(t >> 24U));
    }
    return out;
}

TEST(blake2b_hash, matches_an_independent_implementation_around_the_block_size) {
    const std::pair<std::size_t, const char*> cases[] = {{127, "a31a7a1737fda7f7c562f4dbf63bfc78"},
                                                         {128, "9e7153b414cdf7b5f41f3972b1d3ea98"},
                                                         {129, "c89109252a3c8ebc8fe94bad53c8ac68"},
                                                         {256, "68ed91980d66c9124e0f529d24a4eae8"},
                                                         {1000, "4df9badbaba9a2a6a9c2b749f06ed878"}};
    for (const auto& [size, expected] : cases) EXPECT_EQ(to_hex(blake2b_of<16>(self_test_sequence(size, 1))), expected);
}

TEST(sha2_hashes, match_the_published_values) {
    EXPECT_EQ(to_hex(sha256_of("abc")), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    EXPECT_EQ(to_hex(sha256_of("")), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    EXPECT_EQ(to_hex(sha256_of("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq")),
              "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
    EXPECT_EQ(to_hex(sha512_of("abc")),
              "ddaf35a193617abacc417349ae20413112e6fa4e89a97ea20a9eeee64b55d39a"
              "2192992a274fc1a836ba3c23a3feebbd454d4423643ce80e2a9ac94fa54ca49f");
    EXPECT_EQ(to_hex(sha512_of("")),
              "cf83e1357eefb8bdf1542850d66d8007d620e4050b5715dc83f4a921d36ce9ce"
              "47d0d13c5d85f2b0ff8318d2877eec2f63b931bd47417a81a538327af927da3e");
}

TEST(digests, work_in_constant_expressions) {
    static_assert(blake2b_of<16>("abc")[0] == 0xcf);
    static_assert(sha256_of("abc")[0] == 0xba);
    static_assert(sha512_of("abc")[0] == 0xdd);
}

TEST(sha2_hashes, pad_correctly_around_every_block_border) {
    const std::string text(300, 'x');
    blake2b all(16);
    for (std::size_t n = 0; n <= text.size(); ++n) {
        all.update(std::span<const std::uint8_t>(sha256_of(std::string_view(text).substr(0, n))));
        all.update(std::span<const std::uint8_t>(sha512_of(std::string_view(text).substr(0, n))));
    }
    EXPECT_EQ(to_hex(finish_digest<16>(all)), "5a92c6e2591a8abab39a22ea6a1a8149");
}

DARLCORE_PROPERTY(digests, do_not_depend_on_how_the_input_is_cut, 1000, (const std::vector<std::string>& pieces)) {
    blake2b parts(32);
    sha256 parts256;
    sha512 parts512;
    std::string whole;
    const auto stretch = *rc::gen::inRange<std::size_t>(1, 40);
    for (const auto& piece : pieces) {
        std::string longer;
        for (std::size_t i = 0; i < stretch; ++i) longer += piece;
        parts.update(longer);
        parts256.update(longer);
        parts512.update(longer);
        whole += longer;
    }
    RC_ASSERT(finish_digest<32>(parts) == blake2b_of<32>(whole));
    RC_ASSERT(parts256.finish() == sha256_of(whole));
    RC_ASSERT(parts512.finish() == sha512_of(whole));
}

TEST(hex_texts, round_trip_and_refuse_anything_else) {
    const digest16 value = blake2b_of<16>("x");
    EXPECT_EQ(from_hex<16>(to_hex(value)), value);
    EXPECT_EQ((from_hex<2>("aBcD")), (std::array<std::uint8_t, 2>{0xab, 0xcd}));
    EXPECT_FALSE(from_hex<2>("abc"));
    EXPECT_FALSE(from_hex<2>("abcde"));
    EXPECT_FALSE(from_hex<2>("abcg"));
    EXPECT_FALSE(from_hex<2>("ab d"));
}

}  // namespace
