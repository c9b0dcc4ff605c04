// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "adapters/formats/page.hpp"

namespace darl {

/// The chart as the bytes of a PNG file, in twice the size of the SVG; an empty text when there is nothing to draw.
/// Characters that the small built-in font lacks are shown as '?'.
std::string chart_png(const darlcore::page::chart& what);

}  // namespace darl
