#include "runs/control/request_server.h"

#include <exception>

#include "spillway/error.h"

namespace spillway {

void RequestServer::serve() {
  for (const RequestInbox::Request& request : inbox_.take()) {
    Json reply;
    try {
      reply = {{"text", calls_.answer(request.content)}};
    } catch (const IoError&) {
      throw;  // the call may be half done; the next owner reads what is durable
    } catch (const std::exception& error) {  // also from a request of the wrong form
      reply = {{"error", error.what()}};
    }
    inbox_.reply(request, reply);
  }
}

}  // namespace spillway
