#pragma once

#include "trainer/c10d/gloo/names.h"
