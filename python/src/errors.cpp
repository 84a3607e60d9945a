#include "spillway/error.h"

#include <nanobind/stl/string.h>

#include "core/base/config_check.h"
#include "python/src/module.h"

namespace nb = nanobind;

namespace spillway::python {
namespace {

/// Raises a class of spillway.errors with a message and values.
template <typename... Values>
void raise(const char* name, const std::exception& error, const Values&... values) {
  const nb::object type = nb::module_::import_("spillway.errors").attr(name);
  const nb::object raised = type(error.what(), values...);
  PyErr_SetObject(type.ptr(), raised.ptr());
}

/// The most special types first. LibTorch's and the standard library's errors stay as they are.
void translate(const std::exception_ptr& thrown, void* /*data*/) {
  try {
    std::rethrow_exception(thrown);
  } catch (const DoesNotFit& error) {
    raise("DoesNotFit", error, error.needed, error.budget, to_string(error.tier));
  } catch (const OutOfMemory& error) {
    raise("OutOfMemory", error);
  } catch (const ConfigError& error) {
    raise("ConfigError", error, error.field);
  } catch (const IoError& error) {
    raise("IoError", error);
  } catch (const CorruptData& error) {
    raise("CorruptData", error);
  } catch (const NewerFormat& error) {
    raise("NewerFormat", error);
  } catch (const InUse& error) {
    raise("InUse", error);
  } catch (const Error& error) {
    raise("Error", error);
  }
}

}  // namespace

void bind_errors(nb::module_& /*module*/) { nb::register_exception_translator(&translate); }

}  // namespace spillway::python
