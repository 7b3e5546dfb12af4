"use strict";

// Swagger UI over the service's own description; addresses are relative, for services below a path.
SwaggerUIBundle({
  url: "openapi.json",
  dom_id: "#api",
  deepLinking: true,
  tryItOutEnabled: true,
  validatorUrl: null,
});
