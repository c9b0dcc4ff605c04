// SPDX-License-Identifier: Apache-2.0
// The device kernels through their C interface: emulated on the host everywhere, on a device where there is one.
#include <dlfcn.h>

#include <gtest/gtest.h>

#include "backends/host/cpu_backend.hpp"
#include "backends/torch/device/device_backend.hpp"
#include "darlcore/testing/tensor_backend_contract.hpp"

namespace darlcore::testing {

std::string library_path(const char* vendor) {
    return std::string(DARLCORE_DEVICE_FOLDER) + "/libdarl_device_" + vendor + ".so";
}

/// A vendor's library, or the reason for which its tests are skipped.
template <class Vendor>
result<const device::device_library*> library_of() {
    static const auto loaded = [] {
        if (!Vendor::built) return result<device::device_library>(fail(errc::not_found, Vendor::missing));
        auto library = device::device_library::load(library_path(Vendor::name));
        if (!library) return library;
        if (const auto devices = library->devices(); !devices) return result<device::device_library>(devices.error());
        return library;
    }();
    if (!loaded) return loaded.error();
    return &*loaded;
}

template <class Vendor>
struct device_factory {
    using backend = device::device_backend;
    static std::optional<std::string> absent() {
        const auto library = library_of<Vendor>();
        if (library) return {};
        return std::string(Vendor::name) + ": " + library.error().context;
    }
    static backend make(const backend_variant&) { return backend(*library_of<Vendor>().value()); }
    static constexpr bool exact_nan = true;
};

struct emulated {
    static constexpr const char* name = "emulated";
    static constexpr bool built = true;
    static constexpr const char* missing = "";
};
struct cuda {
    static constexpr const char* name = "cuda";
    static constexpr bool built = DARLCORE_HAS_NVCC;
    static constexpr const char* missing = "nvcc was not there when this was built";
};
struct hip {
    static constexpr const char* name = "hip";
    static constexpr bool built = DARLCORE_HAS_HIPCC;
    static constexpr const char* missing = "hipcc was not there when this was built";
};

INSTANTIATE_TYPED_TEST_SUITE_P(emulated, tensor_backend_contract, device_factory<emulated>);
INSTANTIATE_TYPED_TEST_SUITE_P(cuda, tensor_backend_contract, device_factory<cuda>);
INSTANTIATE_TYPED_TEST_SUITE_P(hip, tensor_backend_contract, device_factory<hip>);

/// The same large step on the host backend and on a device.
template <class Vendor>
void expect_bits_of_the_host_backend() {
    const auto library = library_of<Vendor>();
    if (!library) GTEST_SKIP() << Vendor::name << ": " << library.error().context;
    for (const std::size_t contributions : {1U, 3U, 17U}) {
        const step_case one = arbitrary_step(300'001, contributions, dtype::bf16, contributions);
        device::device_backend on_device(**library);
        host::cpu_backend on_host;
        const auto a = step_on(on_device, one, contributions % 4);
        const auto b = step_on(on_host, one, contributions % 4);
        ASSERT_TRUE(a && b);
        EXPECT_TRUE(*a == *b) << contributions;
    }
}
TEST(device_kernels, emulated_steps_have_the_bits_of_the_host_backend) { expect_bits_of_the_host_backend<emulated>(); }
TEST(device_kernels, steps_on_cuda_have_the_bits_of_the_host_backend) { expect_bits_of_the_host_backend<cuda>(); }
TEST(device_kernels, steps_on_hip_have_the_bits_of_the_host_backend) { expect_bits_of_the_host_backend<hip>(); }

TEST(device_kernels, arguments_without_sense_are_refused_with_words) {
    const auto library = *library_of<emulated>();
    std::vector<float> x(8, 1.0F);
    darl_device_step step{};
    step.elements = 8;
    EXPECT_EQ(library->outer_step(&step, nullptr), DARL_DEVICE_BAD_ARGUMENT) << "nothing to sum";
    EXPECT_STRNE(library->error_text(), "no error");
    step.v_out = x.data();
    step.deltas = DARL_DEVICE_DELTAS_MAX + 1;
    EXPECT_EQ(library->outer_step(&step, nullptr), DARL_DEVICE_BAD_ARGUMENT) << "too many deltas";
    step.deltas = 1;
    step.delta[0] = {x.data(), 7, 1.0F, 1.0F};
    EXPECT_EQ(library->outer_step(&step, nullptr), DARL_DEVICE_BAD_ARGUMENT) << "unknown type";
    EXPECT_EQ(library->scan(nullptr, DARL_DEVICE_F32, 8, nullptr, nullptr), DARL_DEVICE_BAD_ARGUMENT);
    EXPECT_EQ(library->convert(x.data(), 9, x.data(), DARL_DEVICE_F32, 8, nullptr), DARL_DEVICE_BAD_ARGUMENT);
    EXPECT_EQ(library->outer_step(&step, nullptr), DARL_DEVICE_BAD_ARGUMENT);
    EXPECT_EQ(x, std::vector<float>(8, 1.0F)) << "nothing was written";
}

TEST(device_library, what_is_no_library_of_kernels_is_an_error_that_names_it) {
    const auto missing = device::device_library::load("/nowhere/libdarl.so");
    ASSERT_FALSE(missing);
    EXPECT_EQ(missing.error().code, errc::not_found);
    const auto other = device::device_library::load("libm.so.6");
    ASSERT_FALSE(other);
    EXPECT_EQ(other.error().code, errc::unsupported);
    EXPECT_NE(other.error().context.find("libm.so.6"), std::string::npos);
}

}  // namespace darlcore::testing
