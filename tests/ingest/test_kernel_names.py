"""Kernels by what they do: names as libraries write them."""

from __future__ import annotations

import pytest

from experiments.ingest.gpu import kernels
from experiments.ingest.gpu.flops import work


@pytest.mark.parametrize(
    ("kernel", "category"),
    [
        ("nvjet_tst_192x192_64x4_2x1_v_bz_coopB_bias_TNN", kernels.GEMM),
        ("Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT256x192x64_MI16x16x1", kernels.GEMM),
        ("void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_128x64>(int)", kernels.GEMM),
        ("ampere_sgemm_32x32_sliced1x4_tn", kernels.GEMM),
        ("void flash::flash_fwd_kernel<Flash_fwd_kernel_traits<128, 128>>(flash::Flash_fwd_params)", kernels.ATTENTION),
        ("_ZN5aiter37fmha_fwd_hd128_bf16_causal_group_rtneE", kernels.ATTENTION),
        ("fmha_cutlassF_bf16_aligned_64x64_rf_sm80(PyTorchMemEffAttention::Params)", kernels.ATTENTION),
        ("sm80_xmma_fprop_implicit_gemm_bf16bf16_bf16f32_f32_nhwckrsc_nhwc", kernels.CONVOLUTION),
        ("void at::native::vectorized_elementwise_kernel<4, CUDAFunctor_add<float> >(int)", kernels.ELEMENTWISE),
        ("triton_poi_fused_add_mul_silu_3", kernels.ELEMENTWISE),
        ("triton_red_fused__to_copy_mean_pow_0", kernels.REDUCTION),
        ("triton_tem_fused_addmm_2", kernels.GEMM),
        ("void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float> >(int)", kernels.REDUCTION),
        ("void (anonymous namespace)::softmax_warp_forward<float, float, 10, false>(float*)", kernels.REDUCTION),
        ("void at::native::(anonymous namespace)::multi_tensor_apply_kernel<Metadata<4> >(int)", kernels.OPTIMIZER),
        ("void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<float>(int)", kernels.NORMALIZATION),
        ("void cudnn::bn_bw_1C11_kernel_new<float, float, float2, 32, true, 1>(float)", kernels.NORMALIZATION),
        ("void at::native::(anonymous namespace)::indexSelectLargeIndex<c10::BFloat16, long>(int)", kernels.SCATTER),
    ],
)  # fmt: skip
def test_a_kernel_is_known_by_its_name(kernel: str, category: str) -> None:
    assert kernels.collective_kind(kernel) is None
    assert kernels.category(kernel) == category


@pytest.mark.parametrize(
    ("kernel", "stated", "kind"),
    [
        ("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "", "all-reduce"),
        ("ncclKernel_AllGather_RING_LL_Sum_int8_t(ncclDevComm*, unsigned long, ncclWork*)", "", "all-gather"),
        ("ncclDevKernel_ReduceScatter_Sum_f32_RING_SIMPLE", "", "reduce-scatter"),
        ("ncclDevKernel_Generic(ncclDevKernelArgsStorage<4096ul>)", "allreduce", "all-reduce"),
        ("ncclDevKernel_Generic(ncclDevKernelArgsStorage<4096ul>)", "", "collective"),
        ("ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)", "all_to_allv", "all-to-all"),
        ("ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)", "", "send/recv"),
        ("void vllm::cross_device_reduce_1stage<__nv_bfloat16, 2>(vllm::RankData*)", "", "all-reduce"),
        ("ncclSymkDevKernel_AllGather_ST(ncclSymkDevWorkArgs)", "", "all-gather"),
    ],
)
def test_collectives_of_every_generation_of_nccl(kernel: str, stated: str, kind: str) -> None:
    assert kernels.collective_kind(kernel, stated) == kind


def test_names_are_shortened_to_the_function() -> None:
    assert kernels.base_name("void at::native::(anonymous namespace)::reduce_kernel<512, 1>(int)") == "reduce_kernel"
    assert kernels.base_name("void cutlass::Kernel2<cutlass_80_s16816gemm_bf16>(int)") == "cutlass_80_s16816gemm_bf16"
    assert kernels.base_name("_ZN2ck16tensor_operation6device11kernel_gemmIfEEvT_") == "kernel_gemm"


BF16 = ["c10::BFloat16"] * 3
CONVOLUTION = ["", "", "", "[2, 2]", "[1, 1]", "[1, 1]", "False", "[0, 0]", "1"]


@pytest.mark.parametrize(
    ("op", "dims", "values", "flops"),
    [
        ("aten::mm", [[8, 4], [4, 2]], [], 2 * 8 * 4 * 2),
        ("aten::addmm", [[2], [8, 4], [4, 2]], [], 2 * 8 * 4 * 2),
        ("aten::bmm", [[3, 8, 4], [3, 4, 2]], [], 3 * 2 * 8 * 4 * 2),
        ("aten::linear", [[5, 8, 4], [2, 4], [2]], [], 2 * 5 * 8 * 4 * 2),
        # 10 images of 14×14 become 7×7 under stride 2; each of 512 outputs sees 256 inputs through 3×3 weights.
        ("aten::convolution", [[10, 256, 14, 14], [512, 256, 3, 3]], CONVOLUTION, 2 * 10 * 49 * 512 * 256 * 9),
        (
            "aten::convolution_backward",
            [[10, 512, 7, 7], [10, 256, 14, 14], [512, 256, 3, 3]],
            [""] * 10 + ["[True, True, False]"],
            2 * 2 * 10 * 49 * 512 * 256 * 9,
        ),
        ("aten::_scaled_dot_product_flash_attention", [[2, 8, 128, 64]] * 3, [], 4 * 2 * 8 * 128 * 128 * 64),
        (
            "aten::_scaled_dot_product_flash_attention_backward",
            [[2, 8, 128, 64]] * 4,
            [],
            10 * 2 * 8 * 128 * 128 * 64,
        ),
        ("flash_attn::_flash_attn_forward", [[2, 128, 8, 64]] * 3, [], 4 * 2 * 8 * 128 * 128 * 64),
    ],
)
def test_flops_as_torch_counts_them(op: str, dims: list[list[int]], values: list[str], flops: int) -> None:
    found = work(op, dims, BF16, values)
    assert found is not None
    assert found.flops == flops
    assert found.dtype == "bf16"


@pytest.mark.parametrize(
    ("op", "dims"),
    [
        ("aten::mm", [[8, 4], [5, 2]]),
        ("aten::mm", [[8, 4]]),
        ("aten::mm", "x"),
        ("aten::relu", [[4]]),
        ("aten::mm", []),
    ],
)
def test_shapes_that_do_not_fit_give_no_flops(op: str, dims: object) -> None:
    assert work(op, dims, BF16, []) is None
