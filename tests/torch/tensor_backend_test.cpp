// SPDX-License-Identifier: Apache-2.0
#include "backends/torch/tensor_backend.hpp"

#include "backends/host/cpu_backend.hpp"
#include "backends/torch/compat.hpp"
#include "darlcore/testing/tensor_backend_contract.hpp"

namespace darlcore::testing {

template <bool Composed>
struct cpu_factory {
    using backend = torch_backend::backend;
    static std::optional<std::string> absent() { return {}; }
    static backend make(const backend_variant& v) {
        at::set_num_threads(v.threads);
        return backend::make({.device = "cpu", .kernels = nullptr, .compose_on_cpu = Composed}).value();
    }
    static constexpr bool exact_nan = false;
};

/// A device of this libtorch, with the fused kernels when their library is there.
template <bool Fused>
struct cuda_factory {
    using backend = torch_backend::backend;
    static const device::device_library* kernels() {
        static const auto library =
            device::device_library::load(std::string(DARLCORE_DEVICE_FOLDER) + "/libdarl_device_cuda.so");
        return library ? &*library : nullptr;
    }
    static std::optional<std::string> absent() {
        const auto made = backend::make({.device = "cuda:0"});
        if (!made) return made.error().context;
        if (Fused && kernels() == nullptr) return "the library of fused kernels was not built: no nvcc";
        return {};
    }
    static backend make(const backend_variant&) {
        return backend::make({.device = "cuda:0", .kernels = Fused ? kernels() : nullptr}).value();
    }
    static constexpr bool exact_nan = false;
};

using torch_cpu = cpu_factory<false>;
using torch_cpu_composed = cpu_factory<true>;
using torch_cuda = cuda_factory<true>;
using torch_cuda_composed = cuda_factory<false>;
INSTANTIATE_TYPED_TEST_SUITE_P(torch_cpu, tensor_backend_contract, torch_cpu);
INSTANTIATE_TYPED_TEST_SUITE_P(torch_cpu_composed, tensor_backend_contract, torch_cpu_composed);
INSTANTIATE_TYPED_TEST_SUITE_P(torch_cuda, tensor_backend_contract, torch_cuda);
INSTANTIATE_TYPED_TEST_SUITE_P(torch_cuda_composed, tensor_backend_contract, torch_cuda_composed);

TEST(torch_tensors, are_viewed_where_they_are_and_others_are_refused) {
    const at::Tensor w = at::full({3, 4}, 1.5, at::kBFloat16);
    const auto view = torch_backend::view_of(w);
    ASSERT_TRUE(view);
    EXPECT_EQ(view->data, w.data_ptr());
    EXPECT_EQ(view->elements, 12U);
    EXPECT_EQ(view->dtype, dtype::bf16);
    EXPECT_EQ(torch_backend::view_of(w.t()).error().code, errc::invalid_argument);
    EXPECT_EQ(torch_backend::view_of(at::zeros({2}, at::kLong)).error().code, errc::unsupported);
}

TEST(torch_tensors, a_device_that_libtorch_cannot_use_is_an_error_that_names_it) {
    const auto made = torch_backend::backend::make({.device = "cuda:63"});
    ASSERT_FALSE(made);
    EXPECT_EQ(made.error().code, errc::not_found);
    EXPECT_NE(made.error().context.find("cuda:63"), std::string::npos);
}

TEST(torch_tensors, three_steps_in_place_have_the_bits_of_the_host_backend) {
    const std::uint64_t n = 150'003;
    step_case one = arbitrary_step(n, 3, dtype::bf16, 11);
    one.v = arbitrary_tensor(dtype::f32, n, 12);
    one.rule = {0.7F, 0.9F, step_mode::nesterov};
    one.wire = dtype::bf16;
    one.in_place = true;
    auto torch = torch_backend::backend::make().value();
    host::cpu_backend cpu;
    for (int round = 0; round < 3; ++round) {
        const auto a = step_on(torch, one);
        const auto b = step_on(cpu, one);
        ASSERT_TRUE(a && b);
        ASSERT_TRUE(*a == *b) << round;
        one.w = a->w;
        one.v = a->v;
    }
}

}  // namespace darlcore::testing
