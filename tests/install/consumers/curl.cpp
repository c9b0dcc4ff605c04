// SPDX-License-Identifier: Apache-2.0
#include "backends/curl/http_client.hpp"

int main() {
    darlcore::client::client_options options;
    options.base_url = "http://127.0.0.1:1";
    auto client = darlcore::client::http_client::make(options);
    if (!client.has_value()) return 1;
    darlcore::client::call call;
    call.path = "/status";
    return client->perform(call).has_value() ? 1 : 0;  // nobody listens there
}
