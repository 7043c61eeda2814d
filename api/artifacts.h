/* artifacts.h - artifacts of tasks as resources of their owner:
 * holdfast://tasks/TASK_ID/artifacts/NAME. */
#pragma once

#include "api/request.h"

constexpr size_t ARTIFACT_READ_BYTES_MAX = 4 << 20; /* larger ones are not told here */
constexpr size_t ARTIFACT_READS_MAX = 32;           /* at once, of one process */

constexpr char ARTIFACT_SCHEME[] = "holdfast:"; /* of no other resource */
constexpr char ARTIFACT_TEMPLATE[] = "holdfast://tasks/{taskId}/artifacts/{name}";
extern const char artifact_template_published[]; /* for resources/templates/list */

/* resources/read of a URI of that scheme, which is kept until the end; ends the request. */
void artifact_read(struct request *request, struct slice uri);
